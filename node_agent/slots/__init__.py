"""Slots: the directory, socket and grant that one container has, what its clients learnt, and who holds it."""
