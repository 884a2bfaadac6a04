-- The state of a request from one phase to the next, by its address in nginx's memory. (The module's own `ngx.ctx` is
-- emptied when nginx turns to an error page, and a variable would be looked up by its name.)

local ffi = require "ffi"
local request = require("resty.core.base").get_request

local M = {}
local states = {}

local function address()
    return tonumber(ffi.cast("intptr_t", request()))
end

function M.begin(state)
    states[address()] = state
end

function M.current()
    return states[address()]
end

function M.finish()
    local place = address()
    local state = states[place]
    states[place] = nil
    return state
end

return M
