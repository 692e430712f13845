"""CRC-32C bit by bit, by its definition: what the tables of pipeline/formats/tfrecord.py are held against."""


def crc32c(data: bytes) -> int:
    """RFC 3720, appendix B.4: reflected polynomial 0x82F63B78, all ones at both ends."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """crc32c.h of TensorFlow: ((crc >> 15) | (crc << 17)) + 0xa282ead8 in 32 bits."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32
