-- Headers that are about one connection only, not about the request or the response as a whole, as far as
-- `Connection` lists them; nginx.conf has those that are known by name.

local M = {}
-- Whoever names one that frames a message, or says where it goes, has made it another message for the next reader.
local FRAME = { upgrade = true, host = true, ["content-length"] = true, ["transfer-encoding"] = true }

-- Those in a `Connection`, or nil.
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

-- From a request. Who calls is told only to an application that judges callers itself.
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

-- From a replica's response.
function M.clean_response()
    local listed = M.listed(ngx.var.upstream_http_connection)
    for place = 1, listed and #listed or 0 do
        ngx.header[listed[place]] = nil
    end
end

return M
