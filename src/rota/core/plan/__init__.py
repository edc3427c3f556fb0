"""Jobs that cannot simply start: places kept for them, who may pass meanwhile, prefetch, who gives
way.
"""
