"""Addresses as typed pointers, for Numba's carray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import types
from numba.extending import intrinsic


def _pointer_to(kind: Any) -> Any:
    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), codegen

    return pointer


as_f32, as_i64, as_u8, as_u16, as_u32 = (
    _pointer_to(kind) for kind in (types.float32, types.int64, types.uint8, types.uint16, types.uint32)
)
