"""Jobs that cannot simply start: places kept for them, who may pass meanwhile, who goes ahead,
who gives way.
"""
