-- The caller of a request and the host that it names, from the headers that nginx puts into one variable, `$caller`. A
-- worker parses each value once, and caches the result until the configuration changes, and for a minute at most
-- because it contains tokens. So the next request of the same caller costs one table access.

local headers = require "headers"
local services = require "services"

local M = {}
local MOST, LONG = 1000, 2048  -- callers in the cache; characters of one that is cached
local MINUTE = 60
local found, count, cached_version, since = {}, 0, -1, 0

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
    if version ~= cached_version or count >= MOST or now - since > MINUTE then
        found, count, cached_version, since = {}, 0, version, now
    end
    local text = ngx.var.caller
    local caller = found[text]
    if not caller then
        caller = read()
        if #text <= LONG then
            found[text] = caller
            count = count + 1
        end
    end
    return caller
end

return M
