-- A request for a service without a ready replica waits for one, and wakes the service: the control program is notified
-- at once, and again every two seconds while requests arrive.

local questions = require "questions"
local counting = require "counting"
local services = require "services"

local M = {}
local MOST, POLL_EVERY = 1000, 0.05  -- requests of one service; seconds

-- The service with its replicas; nil if it gets none in time, or if too many requests wait.
function M.wait(host, service, state)
    local run = service.run
    state.held = true
    local held = counting.hold(run)
    if held > MOST then
        return nil
    end
    if counting.first("told|" .. run, 2) then
        questions.ask({ ask = "wake", run = run })
    end
    local deadline = ngx.now() + service.hold
    while ngx.now() < deadline do
        ngx.sleep(POLL_EVERY)
        service = services.at(host)
        if not service or service.run ~= run then
            return nil
        elseif #service.replicas > 0 then
            counting.release(run)
            state.held, state.service, state.at = false, service, ngx.now()
            return service
        end
    end
    return nil
end

return M
