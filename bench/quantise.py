"""int8 versions by ONNX Runtime's static quantisation: QuantizeLinear and DequantizeLinear around
every operator, signed weights with a scale for each channel, unsigned activations, ranges from the
smallest and largest values that a few random inputs produce."""

import tempfile

import onnxruntime.quantization as quantization

SAMPLES = 3


class Samples(quantization.CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def quantise(source, target, feeds):
    """Writes the int8 version of model file `source` to `target`."""
    # The large ones are BERT's weights: as int8 they fit into one file again.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        part = f"{folder}/int8.onnx"
        quantization.quantize_static(
            source,
            part,
            Samples(feeds),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod.MinMax,
        )
        type(target)(part).rename(target)
