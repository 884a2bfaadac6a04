-- What is served, by host: written by the control program (control.lua), read by every worker for every request.
--
-- The shared dictionary holds JSON, and a number that grows with each change. A worker keeps what it has parsed until
-- that number has grown, so that a request costs one look at it.

local json = require "cjson.safe"

local M = {}
local served = ngx.shared.served
local parsed, seen = { host = {} }, -1

-- Grows with each change, so that what was made of entries can be kept as long as it is the same.
function M.version()
    local version = served:get("version") or 0
    if version ~= seen then
        parsed, seen = { host = {} }, version
    end
    return version
end

-- The entry for a kind (`host`, `certificate`, `challenge`) and a name, or nil.
function M.entry(kind, name)
    M.version()
    local entries = parsed[kind]
    local found = entries and entries[name]
    if found == nil then
        local text = served:get(kind .. "|" .. name)
        if not text then
            return nil  -- not remembered: anyone may ask for any host
        end
        found = json.decode(text)
        parsed[kind] = entries or {}
        parsed[kind][name] = found
    end
    return found
end

function M.at(host)
    return M.entry("host", host)
end

return M
