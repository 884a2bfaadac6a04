-- May the bearer of this token call the service? The control program asks the control plane, which gets no token; what
-- it said is good for a minute, a refusal for five seconds. While the control plane can't be asked, who was let in
-- within the last five minutes still is. Verdicts are kept under hashes.
--
-- A token for services (usecases/services/service_tokens.py) may be for one of them, and may come over plain http. A person's own
-- can do much more, so it is taken over https only, or from this machine.

local asking = require "asking"

local M = { INSECURE = "insecure" }
local judged = ngx.shared.judged
local GOOD, AHEAD, AWAY, BAD = 60, 50, 300, 5  -- seconds
local SERVICE = "dstack-service."
local LOOK = 1  -- seconds until a worker looks at a caller's verdict again: the hash under which it is takes a while

local function ask(key, token, project, run)
    local verdict = asking.ask({ ask = "rights", token = token, project = project, run = run })
    local status = verdict and verdict.status
    if status == 200 then
        judged:set(key, ngx.now(), AWAY)
    elseif status == 403 then
        judged:delete(key)
        judged:set("no" .. key, 403, BAD)
    end
    return status
end

local function bearer(caller)
    return caller.authorization and caller.authorization:match("^[Bb][Ee][Aa][Rr][Ee][Rr]%s+([!-~]+)%s*$")
end

local function is_scoped(token)
    return token:sub(1, #SERVICE) == SERVICE
end

local function in_the_open(caller)
    if caller.secure then
        return false
    end
    local address, token = ngx.var.remote_addr, bearer(caller)
    return token and not is_scoped(token) and address ~= "::1" and address:sub(1, 4) ~= "127."
end

local function judge(caller, project, run)
    local token = bearer(caller)
    if not token then
        return 403
    end
    local key = ngx.sha1_bin((is_scoped(token) and run or "") .. "|" .. project .. "|" .. token)
    local at = judged:get(key)
    local age = at and ngx.now() - at
    if age and age < AHEAD then
        return 200
    end
    if age and age < GOOD and not judged:add("asked" .. key, true, BAD) then
        return 200  -- another request is asking already
    end
    local refused = not at and judged:get("no" .. key)
    return refused or ask(key, token, project, run) or (at and 200) or 503
end

-- 200, 403, INSECURE, or 503 if nobody can say. `run`: the service, or an empty string for all of the project's.
function M.judge(caller, project, run)
    local now = ngx.now()
    if in_the_open(caller) then
        return M.INSECURE  -- whoever else has just been let in with it
    elseif now < caller.let_in_until then
        return 200
    end
    local status = judge(caller, project, run)
    if status == 200 then
        caller.let_in_until = now + LOOK
    end
    return status
end

return M
