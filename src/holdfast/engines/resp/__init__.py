"""The Redis wire protocol, for the engines that speak it."""
