-- Who asks, and at which host: nginx has all that says so in one variable, `$caller`. A worker reads that once, and
-- keeps what it found until something changes, and for a minute at most, because tokens are in it: the next request of
-- the same caller costs one look at it.

local headers = require "headers"
local services = require "services"

local M = {}
local MOST, LONG = 1000, 2048  -- callers; characters of one: anybody may send them
local MINUTE = 60
local found, kept, seen, since = {}, 0, -1, 0

local function read()
    local host = ngx.var.host
    local http2 = ngx.var.server_protocol == "HTTP/2.0"
    local named = (ngx.var.http_host or host):lower():gsub(":%d*$", ""):gsub("%.$", "")
    return {
        host = host,
        hostless = not ngx.var.http_host,
        two_hosts = named ~= host,  -- a target in absolute form may name another
        service = services.at(host) or false,
        secure = ngx.var.scheme == "https",
        http2 = http2,
        authorization = ngx.var.http_authorization or false,
        chunked = ngx.var.http_transfer_encoding ~= nil,
        websocket = not http2 and (ngx.var.http_upgrade or ""):lower() == "websocket",  -- HTTP/2 has no upgrades
        listed = headers.listed(ngx.var.http_connection) or false,
        let_in_until = 0,  -- by access.lua
    }
end

function M.current()
    local version, now = services.version(), ngx.now()
    if version ~= seen or kept >= MOST or now - since > MINUTE then
        found, kept, seen, since = {}, 0, version, now
    end
    local text = ngx.var.caller
    local caller = found[text]
    if not caller then
        caller = read()
        if #text <= LONG then
            found[text] = caller
            kept = kept + 1
        end
    end
    return caller
end

return M
