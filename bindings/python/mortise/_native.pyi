# The cffi module (native/build.py). Its types are those of C.
from typing import Any

ffi: Any
lib: Any
