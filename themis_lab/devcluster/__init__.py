"""The development cluster: real daemons of Hadoop, HDFS and YARN, on loopback addresses of one machine."""
