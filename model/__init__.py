"""The network: an encoder, its heads and objectives, for one device and with no idea of ranks."""
