"""The development cluster: real Hadoop daemons of HDFS and YARN on loopback addresses of one machine."""
