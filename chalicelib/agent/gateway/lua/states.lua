-- What is known of a request from one phase to the next, by its address in nginx's memory. (The place that the module
-- has for that, `ngx.ctx`, is emptied when nginx turns to an error page; a variable is found by its name only.)

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
