"""Processes that have joined: their sockets and messages, how they join, return and leave, and the clients' table."""
