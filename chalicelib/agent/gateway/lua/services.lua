-- The services by host: written by the control program (control.lua), read by every worker for every request.
--
-- The shared dictionary has JSON texts, and a number that grows with each change. A worker caches parsed entries until
-- that number has grown, so a request costs one access to it.

local json = require "cjson.safe"

local M = {}
local served = ngx.shared.served
local parsed, seen = { host = {} }, -1

-- A number that grows with each change, until which results from entries can be cached.
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
            return nil  -- not cached, because clients may name any host
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
