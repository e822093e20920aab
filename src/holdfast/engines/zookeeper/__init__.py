"""`zookeeper://`: ephemeral sequential nodes."""
