"""What the webhook and the server for agents share: they accept connections of unknown peers on one event loop.

listener  accepts connections, and pauses while the process has no descriptors left
turns     divides the loop's time by peers
descriptors  raises the limit of open descriptors
tls       loads a certificate without a file
"""
