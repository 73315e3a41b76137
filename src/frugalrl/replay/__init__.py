"""What is kept and what is drawn."""
