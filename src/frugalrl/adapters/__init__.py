"""Other people's trainers, each an optional extra; nothing is imported until you ask for it."""
