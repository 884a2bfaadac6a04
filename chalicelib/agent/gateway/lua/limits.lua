-- Rate limits by a leaky bucket, stored as one time for each client (GCRA): when its next request is due at a steady
-- rate. A request at most `burst` steps before that passes; an earlier one is refused with the time to wait.
--
-- Two workers that judge one client at the same instant may let one request too many through, which isn't worth a lock.

local M = {}
local steps = ngx.shared.limits

-- The limit of the longest prefix of this path, as applications read it: with single slashes.
local function applying(limits)
    local found = limits[1]
    if not found or (found.prefix == "/" and not limits[2]) then
        return found
    end
    found = nil
    local path = ngx.var.uri
    if path:find("//", 1, true) then
        path = path:gsub("//+", "/")
    end
    for _, limit in ipairs(limits) do
        if path:sub(1, #limit.prefix) == limit.prefix and (not found or #limit.prefix > #found.prefix) then
            found = limit
        end
    end
    return found
end

-- Nil if the request may pass, else the seconds to wait; and the number of further requests that may pass at once.
function M.judge(run, limits)
    local limit = applying(limits)
    if not limit then
        return nil, nil
    end
    local client = ngx.var.remote_addr
    if limit.header then
        client = ngx.req.get_headers(0)[limit.header] or ""
        if type(client) == "table" then
            client = table.concat(client, ",")
        end
    end
    local key = run .. "\n" .. limit.prefix .. "\n" .. (#client > 64 and ngx.sha1_bin(client) or client)
    local step, now = 1 / limit.rps, ngx.now()
    local next = math.max(steps:get(key) or now, now)
    local early = next - now - limit.burst * step
    if early > 1e-6 then
        return early, 0
    end
    steps:set(key, next + step, next + step - now + 1)
    return nil, math.floor((limit.burst * step - (next - now)) / step + 1e-6)
end

return M
