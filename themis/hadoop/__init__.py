"""Hadoop, spoken to by its own clients: YARN through the Java ones, HDFS over WebHDFS."""
