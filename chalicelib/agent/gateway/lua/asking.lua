-- Questions to the control program: one line of JSON there, one line back, over a unix socket.

local json = require "cjson.safe"

local M = {}
local PATIENCE = 10000  -- milliseconds; the control program gives up on the control plane before

-- The reply, or nil and what went wrong.
function M.ask(question)
    local socket = ngx.socket.tcp()
    socket:settimeout(PATIENCE)
    local reached, problem = socket:connect(ASKS)
    if not reached then
        return nil, problem
    end
    local sent
    sent, problem = socket:send(json.encode(question) .. "\n")
    if not sent then
        return nil, problem
    end
    local line
    line, problem = socket:receive("*l")
    if not line then
        return nil, problem
    end
    socket:setkeepalive(60000, 16)
    return json.decode(line)
end

return M
