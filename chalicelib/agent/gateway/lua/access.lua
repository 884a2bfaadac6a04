-- May the bearer of this token call the project's services? The control program asks the control plane; what it said
-- is good for a minute, a refusal for five seconds. While the control plane can't be asked, who was let in within the
-- last five minutes still is.

local asking = require "asking"

local M = {}
local judged = ngx.shared.judged
local GOOD, AHEAD, AWAY, BAD = 60, 50, 300, 5  -- seconds
local LOOK = 1  -- seconds until a worker looks at a caller's verdict again: the hash under which it is takes a while

local function ask(key, token, project)
    local verdict = asking.ask({ ask = "rights", token = token, project = project })
    local status = verdict and verdict.status
    if status == 200 then
        judged:set(key, ngx.now(), AWAY)
    elseif status == 403 then
        judged:delete(key)
        judged:set("no" .. key, 403, BAD)
    end
    return status
end

local function judge(header, project)
    local token = header and header:match("^[Bb][Ee][Aa][Rr][Ee][Rr]%s+(%S+)%s*$")
    if not token then
        return 403
    end
    local key = ngx.sha1_bin(project .. "|" .. token)
    local at = judged:get(key)
    local age = at and ngx.now() - at
    if age and age < AHEAD then
        return 200
    end
    if age and age < GOOD and not judged:add("asked" .. key, true, BAD) then
        return 200  -- another request is asking already
    end
    local refused = not at and judged:get("no" .. key)
    return refused or ask(key, token, project) or (at and 200) or 503
end

-- 200, 403, or 503 if nobody can say.
function M.judge(caller, project)
    local now = ngx.now()
    if now < caller.let_in_until then
        return 200
    end
    local status = judge(caller.authorization, project)
    if status == 200 then
        caller.let_in_until = now + LOOK
    end
    return status
end

return M
