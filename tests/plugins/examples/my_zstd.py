"""One zstd frame per tensor, each after its name and its length."""

import struct

import zstandard

from harness.config import within
from harness.save import Format, tensor_bytes, tensor_of

LENGTHS = struct.Struct("<II")  # of the name, of the frame


class MyZstd(Format):
    extension = "zst"

    def __init__(self, settings=None):
        super().__init__(settings)
        if settings:
            within("save.level", settings.level, 1, 22)

    def write(self, sink, stream):
        packer = zstandard.ZstdCompressor(level=self.settings.level)
        for name, tensor in stream:
            frame = packer.compress(tensor_bytes(tensor))
            sink.write(LENGTHS.pack(len(name.encode()), len(frame)) + name.encode() + frame)

    def read(self, source, wanted):
        left, unpacker = set(wanted), zstandard.ZstdDecompressor()
        while left and not source.ended():
            size, length = LENGTHS.unpack(source.exactly(LENGTHS.size))
            name, frame = source.exactly(size).decode(), source.exactly(length)
            if name in left:
                left.remove(name)
                yield (
                    name,
                    tensor_of(_unpacked(unpacker, frame, wanted[name]["nbytes"]), wanted[name]),
                )
        if left:
            raise ValueError(f"it does not hold {sorted(left)[0]}")


def _unpacked(unpacker, frame, nbytes):
    """No more than `nbytes`: a frame that says it is larger is refused before it is unpacked."""
    try:
        if zstandard.frame_content_size(frame) != nbytes:
            raise ValueError("a frame does not have the declared size")
        return unpacker.decompress(frame)
    except zstandard.ZstdError as problem:
        raise ValueError(f"a frame cannot be unpacked: {problem}") from None
