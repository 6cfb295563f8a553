"""Words of texts: lower-case runs of letters, marks, digits and underscores.

All texts of a micro-batch are analysed at once, on their bytes. Texts with characters beyond ASCII first
have the characters that separate words replaced, so that in all texts the bytes of words are letters,
digits, the underscore, and bytes above 127.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks

_SEPARATORS = r"[^\p{L}\p{M}\p{N}_]+"
_IN_WORD = np.zeros(256, np.bool_)
_IN_WORD[[*b"abcdefghijklmnopqrstuvwxyz0123456789_", *range(128, 256)]] = True


def split_tokens(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The words of each text, in order. A null has none.

    Examples
    --------
    >>> split_tokens(pa.array(["Don't PANIC, 42 times!", "ÉTÉ — naïve_1", None])).to_pylist()
    [['don', 't', 'panic', '42', 'times'], ['été', 'naïve_1'], []]
    """
    array = combine_chunks(texts).cast(pa.string())
    lower = _separate(pc.utf8_lower(array.fill_null("")))
    offsets = np.frombuffer(lower.buffers()[1], np.int32)[lower.offset :][: len(lower) + 1]
    data = lower.buffers()[2]
    if data is None or not len(lower) or offsets[-1] == offsets[0]:
        return pa.array([[]] * len(lower), pa.list_(pa.string()))
    codes = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    bounds = (offsets - offsets[0]).astype(np.int64)
    inside = _IN_WORD[codes]
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    # A text begins a new word, too.
    firsts = bounds[:-1][bounds[:-1] < bounds[1:]]
    begins[firsts] = inside[firsts]
    starts = np.flatnonzero(begins)
    stored = np.append(0, np.cumsum(inside))  # bytes of words before each byte
    letters = codes[inside]
    ends = np.append(stored[starts], len(letters)).astype(np.int32)
    tokens = pa.StringArray.from_buffers(
        len(starts), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(letters))
    )
    counts = np.searchsorted(starts, bounds).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(counts, pa.int32()), tokens)


def _separate(texts: pa.Array) -> pa.Array:
    """The texts; a space instead of each run of separators in those that are not ASCII."""
    is_ascii = pc.string_is_ascii(texts)
    if pc.all(is_ascii).as_py() is not False:
        return texts
    return pc.replace_with_mask(
        texts,
        pc.invert(is_ascii),
        pc.replace_substring_regex(texts.filter(pc.invert(is_ascii)), _SEPARATORS, " "),
    )
