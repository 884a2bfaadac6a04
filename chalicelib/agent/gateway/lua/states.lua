-- What is known of a request from one phase to the next, under a number that one of nginx's variables keeps. (Its own
-- place for that, `ngx.ctx`, is emptied when it turns to an error page, and costs more.)

local M = {}
local states, last = {}, 0

function M.begin(state)
    last = last + 1
    state.number = tostring(last)
    ngx.var.state = state.number
    states[state.number] = state
    return state
end

function M.current()
    return states[ngx.var.state]
end

function M.finish()
    local state = M.current()
    if state then
        states[state.number] = nil
    end
    return state
end

return M
