"""What may enter the buffer."""
