"""TensorFlow programs and the replay job."""
