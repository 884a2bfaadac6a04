-- Headers of one connection, not of the request or the response as a whole, that `Connection` lists; nginx.conf has
-- those with well-known names.

local M = {}
-- Without one that frames a message or names its target, the next server would read another message.
local FRAME = { upgrade = true, host = true, ["content-length"] = true, ["transfer-encoding"] = true }

-- The headers that a `Connection` lists, or nil.
function M.listed(connection)
    local names
    if connection and connection ~= "keep-alive" and connection ~= "close" then
        for name in connection:lower():gmatch("[^%s,]+") do
            if not FRAME[name] then
                names = names or {}
                names[#names + 1] = name
            end
        end
    end
    return names
end

function M.upgrade()
    ngx.var.connection_wanted, ngx.var.upgrade_wanted = "upgrade", "websocket"
end

-- Remove headers from a request. Only an application that authenticates callers itself gets their credentials.
function M.clean(caller, service)
    local listed = caller.listed
    for place = 1, listed and #listed or 0 do
        ngx.req.clear_header(listed[place])
    end
    if caller.websocket then
        M.upgrade()
    end
    if caller.authorization and service.auth == false then
        ngx.var.authorization = ngx.var.http_authorization
    end
end

-- Remove headers from a replica's response.
function M.clean_response()
    local listed = M.listed(ngx.var.upstream_http_connection)
    for place = 1, listed and #listed or 0 do
        ngx.header[listed[place]] = nil
    end
end

return M
