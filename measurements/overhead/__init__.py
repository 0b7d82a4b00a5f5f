"""What the hook costs a program that shares its GPU with nobody."""
