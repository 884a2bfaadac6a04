-- What is served, by host: written by the control program (control.lua), read by every worker for every request.
--
-- The shared dictionary holds JSON, and a number that grows with each change. A worker keeps what it has parsed until
-- that number has grown, so that a request costs one look at it.

local json = require "cjson.safe"

local M = {}
local served = ngx.shared.served
local parsed, seen = {}, -1

-- The entry for a kind (`host`, `certificate`, `challenge`) and a name, or nil.
function M.entry(kind, name)
    local version = served:get("version") or 0
    if version ~= seen then
        parsed, seen = {}, version
    end
    local key = kind .. "|" .. name
    local found = parsed[key]
    if found == nil then
        local text = served:get(key)
        if not text then
            return nil  -- not remembered: anyone may ask for any host
        end
        found = json.decode(text)
        parsed[key] = found
    end
    return found
end

function M.at(host)
    return M.entry("host", host)
end

return M
