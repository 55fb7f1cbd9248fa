"""What the host and the phones share: both sides import it, and it imports neither."""
