-- The control program's interface, over a unix socket that no other user may open.
--
--   POST /set     {"key": "text", "other": false}   sets and removes entries: all of them, or none if memory is full
--   POST /counts  {"runs": [...], "jobs": [...]}    their counts so far (counting.lua)
--   GET  /keys    the keys of all entries, for a control program that has just started
--   POST /forget  {"tokens": true}                  every verdict about tokens

local json = require "cjson.safe"
local counting = require "counting"

local M = {}
local served = ngx.shared.served

local function read_body()
    ngx.req.read_body()
    local text = ngx.req.get_body_data()
    if not text and ngx.req.get_body_file() then
        local file = assert(io.open(ngx.req.get_body_file(), "rb"))
        text = file:read("*a")
        file:close()
    end
    return json.decode(text or "")
end

local function reply(status, value)
    ngx.status = status
    ngx.header["Content-Type"] = "application/json"
    ngx.print(json.encode(value))
end

local function set(entries)
    local before = {}
    for key, text in pairs(entries) do
        before[key] = served:get(key) or false
    end
    for key, text in pairs(entries) do
        local stored, problem = true, nil
        if text then
            stored, problem = served:safe_set(key, text)
        else
            served:delete(key)
        end
        if not stored then
            for earlier, value in pairs(before) do
                served:set(earlier, value or nil)
            end
            return reply(507, { problem = key .. ": " .. problem })
        end
    end
    reply(200, { version = served:incr("version", 1, 0) })
end

local function keys()
    local found = {}
    for _, key in ipairs(served:get_keys(0)) do
        if key ~= "version" then
            found[#found + 1] = key
        end
    end
    reply(200, { keys = setmetatable(found, json.array_mt) })
end

function M.serve()
    local call = ngx.var.request_method .. " " .. ngx.var.uri
    if call == "GET /keys" then
        return keys()
    end
    local body = read_body()
    if type(body) ~= "table" then
        return reply(400, { problem = "the body isn't a JSON object" })
    elseif call == "POST /set" then
        return set(body)
    elseif call == "POST /counts" then
        return reply(200, counting.read(body.runs or {}, body.jobs or {}))
    elseif call == "POST /forget" then
        ngx.shared.judged:flush_all()
        served:incr("version", 1, 0)  -- or workers would go on with their cached entries
        return reply(200, {})
    end
    reply(404, { problem = "there is nothing at " .. call })
end

return M
