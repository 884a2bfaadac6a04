-- What is known of a request from one phase to the next. nginx forgets a request's own Lua values when it turns to an
-- error page, so they are kept here, under a number that its variables keep.

local M = {}
local states, last = {}, 0

function M.begin(state)
    last = last + 1
    ngx.var.state = last
    states[last], ngx.ctx.state = state, state
    return state
end

function M.current()
    return ngx.ctx.state or states[tonumber(ngx.var.state)]
end

function M.finish()
    local state = M.current()
    if state then
        states[tonumber(ngx.var.state)] = nil
    end
    return state
end

return M
