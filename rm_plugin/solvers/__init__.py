"""Winner determination behind one port."""
