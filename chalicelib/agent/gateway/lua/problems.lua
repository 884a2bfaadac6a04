-- Refusals: what went wrong, and what to do, as JSON. What is asked of a model gets OpenAI's shape, which its clients
-- know how to show.

local json = require "cjson.safe"
local states = require "states"

local M = {}

local TYPES = { [403] = "permission_error", [404] = "not_found_error", [429] = "rate_limit_error" }

local function shaped(status, code, text, param)
    local path = ngx.var.uri or ""
    local state = states.current()
    if path:sub(1, 4) == "/v1/" or ngx.ctx.models or (state and state.models) then
        local kind = TYPES[status] or (status < 500 and "invalid_request_error" or "server_error")
        return { error = { message = text, type = kind, code = code, param = param or json.null } }
    end
    return { detail = { { msg = text, code = code } } }
end

-- Says so, and ends the request. `param`: the field that it is about.
function M.refuse(status, code, text, param)
    if not pcall(ngx.req.discard_body) then
        return ngx.exit(400)  -- it isn't what its head says
    end
    local body = json.encode(shaped(status, code, text, param)) .. "\n"
    ngx.status = status
    ngx.header["Content-Type"] = "application/json"
    ngx.header["Content-Length"] = #body
    ngx.print(body)
    return ngx.exit(status)
end

-- What was sent is no request, so nothing behind it is read: nginx ends the connection after its own errors only.
function M.malformed(text)
    ngx.var.malformed = text
    return ngx.exit(400)
end

return M
