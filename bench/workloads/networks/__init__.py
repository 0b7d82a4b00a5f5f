"""The networks of the workloads, implemented here to need no model library and no download.

`convolutional` has ResNet-50 and MobileNetV2, `transformer` has the encoder and the decoder.
"""
