-- The choice of a replica for a request: the one with the fewest current requests that this request hasn't tried. One
-- that couldn't be reached, or broke off before its response, comes last for five seconds; for this request, all
-- replicas of its host do.

local counting = require "counting"

local M = {}
local MARKED = 5  -- seconds
local marks = ngx.shared.counts

function M.mark(job)
    marks:set("bad|" .. job, true, MARKED)
end

-- `tried`: a set of jobs and their hosts, or false; these get the request again only if there is no other. `only`: the
-- one job that may get it, or false.
function M.pick(replicas, tried, only)
    if #replicas == 1 and not only then
        return replicas[1]
    end
    local best, least_bad, least_busy
    local from = #replicas > 1 and math.random(#replicas) or 1  -- equal replicas take turns
    for offset = 0, #replicas - 1 do
        local replica = replicas[(from + offset - 1) % #replicas + 1]
        if not only or replica.job == only then
            local bad = marks:get("bad|" .. replica.job) and 1 or 0
            if tried then
                bad = bad + (tried[replica.job] and 4 or 0) + (tried[replica.host] and 2 or 0)
            end
            local busy = counting.busy(replica.job)
            if not best or bad < least_bad or (bad == least_bad and busy < least_busy) then
                best, least_bad, least_busy = replica, bad, busy
            end
        end
    end
    return best
end

return M
