"""Slots: the directory, socket and grant of one container, what its clients learnt, and who holds the slot."""
