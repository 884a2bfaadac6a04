"""A gateway's Lua without nginx: what it asks of nginx is played, and the time is an input."""

from __future__ import annotations

import ctypes
import json
from ctypes.util import find_library
from functools import cache
from pathlib import Path
from typing import Any

from chalicelib.agent import gateway
from tests.serving.nginx_door import installed

FOLDER = Path(gateway.__file__).parent / "lua"

NGINX = r"""
clock = 1000
local function shared()
    local kept = {}
    local function live(key)
        local found = kept[key]
        return found and (found.ends == 0 or clock < found.ends) and found or nil
    end
    local dict = { kept = kept }
    function dict:get(key) local found = live(key) return found and found.value end
    function dict:ttl(key) local found = kept[key] return found and (found.ends == 0 and 0 or found.ends - clock) end
    function dict:delete(key) kept[key] = nil end
    function dict:set(key, value, seconds)
        assert((seconds or 0) >= 0, "bad exptime")
        local milliseconds = math.floor((seconds or 0) * 1000)  -- as nginx has it: none of them is for ever
        kept[key] = { value = value, ends = milliseconds > 0 and clock + milliseconds / 1000 or 0 }
    end
    function dict:add(key, value, seconds)
        if live(key) then return false, "exists" end
        self:set(key, value, seconds)
        return true
    end
    return dict
end
ngx = {
    shared = setmetatable({}, { __index = function(all, name) all[name] = shared() return all[name] end }),
    var = { remote_addr = "127.0.0.1" },
    now = function() return clock end,
    sha1_bin = function(text) return text end,
}
"""
RETURN = r"""
local said = main()
for place, value in ipairs(said) do said[place] = tostring(value) end
return "[" .. table.concat(said, ",") .. "]"
"""


@cache
def _library() -> ctypes.CDLL:
    installed()
    lua = ctypes.CDLL(find_library("luajit-5.1") or "libluajit-5.1.so.2")
    lua.luaL_newstate.restype = ctypes.c_void_p
    lua.lua_tolstring.restype = ctypes.c_char_p
    lua.lua_tolstring.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    for name in ("luaL_openlibs", "lua_close"):
        getattr(lua, name).argtypes = [ctypes.c_void_p]
    lua.luaL_loadstring.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lua.lua_pcall.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    return lua


def run(script: str) -> list[Any]:
    """The numbers and truths that the script returns, as a table. It has the gateway's modules, `ngx`, and the time in
    `clock`, in seconds."""
    lua = _library()
    state = lua.luaL_newstate()
    lua.luaL_openlibs(state)
    body = f"{NGINX}\npackage.path = '{FOLDER}/?.lua'\nlocal function main()\n{script}\nend\n"
    try:
        failed = lua.luaL_loadstring(state, f"{body}{RETURN}".encode())
        failed = failed or lua.lua_pcall(state, 0, 1, 0)
        message = lua.lua_tolstring(state, -1, None).decode()
    finally:
        lua.lua_close(state)
    assert not failed, message
    found: list[Any] = json.loads(message)
    return found
