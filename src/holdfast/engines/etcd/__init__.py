"""`etcd://`: leases and revisions."""
