-- Headers that are about one connection only, not about the request or the response as a whole, as far as
-- `Connection` lists them; nginx.conf has those that are known by name.

local M = {}

local function listed(connection)
    return connection:lower():gmatch("[^%s,]+")
end

-- From a request. `keep_authorization`: whether the application judges the caller itself.
function M.clean(keep_authorization)
    local connection = ngx.var.http_connection
    if connection and connection ~= "keep-alive" and connection ~= "close" then
        for name in listed(connection) do
            if name ~= "upgrade" and name ~= "close" and name ~= "keep-alive" then
                ngx.req.clear_header(name)
            end
        end
    end
    if not keep_authorization and ngx.var.http_authorization then
        ngx.req.clear_header("Authorization")
    end
end

-- From a replica's response.
function M.clean_response()
    local connection = ngx.var.upstream_http_connection
    if connection and connection ~= "keep-alive" and connection ~= "close" then
        for name in listed(connection) do
            if name ~= "upgrade" then
                ngx.header[name] = nil
            end
        end
    end
end

return M
