"""The Huffman code of HPACK (RFC 7541, Appendix B).

The code is canonical: the symbols of each length say it all. Decoding goes byte by byte through a table of states, one
for each inner node of the tree; the row of a state is made when it is first needed.
"""

from typing import Final

_EOS: Final = 256
_SYMBOLS: Final = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\0$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9"),
    23: bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9"),
    30: b"\n\r\x16",  # and the end of string, last
}


class BadHuffman(ValueError):
    """The bytes are no Huffman code of a string."""


def encode(text: bytes) -> bytes:
    """Encode, padded with the beginning of the end-of-string symbol."""
    bits, size = 0, 0
    for symbol in text:
        code, length = _CODES[symbol]
        bits = bits << length | code
        size += length
    rest = -size % 8
    return ((bits << rest) | ((1 << rest) - 1)).to_bytes((size + rest) // 8, "big")


def decode(data: bytes) -> bytes:
    """Decode; raises `BadHuffman` for an end-of-string symbol, or padding that is not the beginning of one."""
    state = 0
    out = []
    for byte in data:
        row = _rows[state] or _make_row(state)
        state, symbols = row[byte]
        if state < 0:
            raise BadHuffman("the end-of-string symbol stands inside a string")
        if symbols:
            out.append(symbols)
    if state not in _FINAL:
        raise BadHuffman("the padding of a string is not the beginning of the end-of-string symbol, or too long")
    return b"".join(out)


def _make_codes() -> dict[int, tuple[int, int]]:
    codes: dict[int, tuple[int, int]] = {}
    code = before = 0
    for length, symbols in _SYMBOLS.items():
        code <<= length - before
        before = length
        for symbol in (*symbols, *((_EOS,) if length == 30 else ())):
            codes[symbol] = code, length
            code += 1
    return codes


def _make_tree() -> list[list[int]]:
    """Inner nodes as [where 0 leads, where 1 leads]: another node, or the complement of a symbol."""
    tree = [[0, 0]]
    for symbol, (code, length) in _CODES.items():
        node = 0
        for bit in range(length - 1, 0, -1):
            side = code >> bit & 1
            if not tree[node][side]:
                tree[node][side] = len(tree)
                tree.append([0, 0])
            node = tree[node][side]
        tree[node][code & 1] = ~symbol
    return tree


def _make_row(state: int) -> list[tuple[int, bytes]]:
    """For each byte: the state after it, -1 after the end of string; and the symbols that ended in it."""
    row = []
    for byte in range(256):
        node, symbols = state, b""
        for bit in range(7, -1, -1):
            node = _TREE[node][byte >> bit & 1]
            if node == ~_EOS:
                break
            if node < 0:
                symbols += bytes((~node,))
                node = 0
        row.append((max(node, -1), symbols))
    _rows[state] = row
    return row


def _make_final() -> frozenset[int]:
    """The states up to seven ones below the root."""
    states = [0]
    for _ in range(7):
        states.append(_TREE[states[-1]][1])
    return frozenset(states)


_CODES: Final = _make_codes()
_TREE: Final = _make_tree()
_FINAL: Final = _make_final()
_rows: Final[list[list[tuple[int, bytes]] | None]] = [None] * len(_TREE)
