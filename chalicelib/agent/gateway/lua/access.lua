-- May the bearer of this token call the service? The control program asks the control plane, which gets no token; what
-- it said is good for a minute, a refusal for five seconds. While the control plane can't be asked, who was let in
-- within the last five minutes still is. No verdict is good for longer than its token. Verdicts are kept under hashes.

local questions = require "questions"

local M = {}
local judged = ngx.shared.judged
local GOOD, AHEAD, AWAY, BAD = 60, 50, 300, 5  -- seconds
local SHORTEST = 0.001  -- seconds that something is kept: for 0 it would be kept for ever
local SERVICE = "dstack-service."  -- how a token begins that may be for one service (usecases/service_tokens.py)
local LOOK = 1  -- seconds until a worker looks at a caller's verdict again: the hash under which it is takes a while

-- `asked`: when the question was put, at which the token had more time left than when the answer came.
local function keep(key, asked, ends_in)
    local now = ngx.now()
    local left = ends_in and math.min(AWAY, asked + ends_in - now) or AWAY
    if left >= SHORTEST then
        judged:set(key, now, left)
    else
        judged:delete(key)
    end
end

local function ask(key, token, project, run)
    local asked = ngx.now()
    local verdict = questions.ask({ ask = "rights", token = token, project = project, run = run })
    local status = verdict and verdict.status or 503
    if status == 200 then
        keep(key, asked, verdict.ends_in)
    elseif status == 403 then
        judged:delete(key)
        judged:set("no" .. key, 403, BAD)
    elseif judged:get(key) then
        return 200
    end
    return status
end

local function bearer(caller)
    return caller.authorization and caller.authorization:match("^[Bb][Ee][Aa][Rr][Ee][Rr]%s+([!-~]+)%s*$")
end

local function judge(token, key, project, run)
    local at = judged:get(key)
    local age = at and ngx.now() - at
    if age and age < AHEAD then
        return 200
    end
    if age and age < GOOD and not judged:add("asked" .. key, true, BAD) then
        return 200  -- another request is asking already
    end
    local refused = not at and judged:get("no" .. key)
    return refused or ask(key, token, project, run)
end

-- Has this come from another machine, over plain http? Then others may have read what is in it.
function M.in_the_open(caller)
    local address = not caller.secure and ngx.var.remote_addr
    return address and address ~= "::1" and address:sub(1, 4) ~= "127."
end

-- 200, 403, or 503 if nobody can say. `run`: the service, or an empty string for all of the project's.
function M.judge(caller, project, run)
    local now = ngx.now()
    if now < caller.let_in_until then
        return 200
    end
    local token = bearer(caller)
    if not token then
        return 403
    end
    local scope = token:sub(1, #SERVICE) == SERVICE and run or ""
    local key = ngx.sha1_bin(scope .. "|" .. project .. "|" .. token)
    local status = judge(token, key, project, run)
    if status == 200 then
        caller.let_in_until = now + math.min(LOOK, judged:ttl(key) or 0)
    end
    return status
end

return M
