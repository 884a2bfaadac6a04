-- Headers that are about one connection only, not about the request or the response as a whole: what nginx doesn't
-- drop by itself.

local M = {}
local HOPS = {
    http_keep_alive = "Keep-Alive", http_proxy_authorization = "Proxy-Authorization",
    http_proxy_connection = "Proxy-Connection", http_te = "TE", http_trailer = "Trailer",
}

local function listed(connection)
    return connection:lower():gmatch("[^%s,]+")
end

-- From a request. `keep_authorization`: whether the application judges the caller itself.
function M.clean(keep_authorization)
    local connection = ngx.var.http_connection
    if connection then
        for name in listed(connection) do
            if name ~= "upgrade" and name ~= "close" and name ~= "keep-alive" then
                ngx.req.clear_header(name)
            end
        end
    end
    for variable, name in pairs(HOPS) do
        if ngx.var[variable] then
            ngx.req.clear_header(name)
        end
    end
    if not keep_authorization then
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
    if ngx.var.upstream_http_proxy_authenticate then
        ngx.header["Proxy-Authenticate"] = nil
    end
end

return M
