"""Lets best-effort tenants leave a GPU's memory when hp needs the room, and come back when there is room."""
