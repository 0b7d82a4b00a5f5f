"""The networks of the workloads, written here so that no model library and no download has to be there.

`convolutional` holds ResNet-50 and MobileNetV2, `transformer` the encoder and the decoder.
"""
