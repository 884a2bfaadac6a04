-- Requests to the control program over a unix socket: a line of JSON each way.

local json = require "cjson.safe"

local M = {}
local PATIENCE = 10000  -- milliseconds; longer than the control program waits for the control plane
local POOL = { pool = "asks", pool_size = 32, backlog = 4096 }  -- of a worker: it has a thread for each connection

-- The reply, or nil and what went wrong.
function M.ask(question)
    local socket = ngx.socket.tcp()
    socket:settimeout(PATIENCE)
    local reached, problem = socket:connect(ASKS, POOL)
    if not reached then
        return nil, problem
    end
    local line
    reached, problem = socket:send(json.encode(question) .. "\n")
    if reached then
        line, problem = socket:receive("*l")
    end
    if not line then
        socket:close()  -- or it occupies the pool until the request ends
        return nil, problem
    end
    socket:setkeepalive(60000, POOL.pool_size)
    return json.decode(line)
end

return M
