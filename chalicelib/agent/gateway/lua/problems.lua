-- Refusals as JSON, with the problem and what to do. Requests to models get OpenAI's form, which its clients can show.

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

-- Answer with a problem, and end the request. `param`: the field with the problem.
function M.refuse(status, code, text, param)
    if not pcall(ngx.req.discard_body) then
        return ngx.exit(400)  -- the body isn't what its head announces
    end
    local body = json.encode(shaped(status, code, text, param)) .. "\n"
    ngx.status = status
    ngx.header["Content-Type"] = "application/json"
    ngx.header["Content-Length"] = #body
    ngx.print(body)
    return ngx.exit(status)
end

-- Refuse a malformed request and end the connection, as nginx does only after its own errors: no more of it is read.
function M.malformed(text)
    ngx.var.malformed = text
    return ngx.exit(400)
end

return M
